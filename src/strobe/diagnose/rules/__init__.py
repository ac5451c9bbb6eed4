"""One function for each cause; every public function defined in a module of this package is a rule."""
