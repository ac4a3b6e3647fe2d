"""What tests of several folders share; every module says in its first line what it is."""
