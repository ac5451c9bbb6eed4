"""The C++ operators, and what compiles and loads them."""
