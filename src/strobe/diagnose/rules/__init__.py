"""One function for each cause: every public function of a module here is a rule, which is given the run's mean step."""
