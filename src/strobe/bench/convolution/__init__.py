"""A study of one kernel: ways to write a convolution, how their times grow, and what two profilers say of one."""
