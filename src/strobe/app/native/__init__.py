"""The C++ operators, and the code that compiles and loads them."""
