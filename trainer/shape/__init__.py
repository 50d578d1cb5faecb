"""The model before any framework builds it: parameters, initial values, layouts, sizes; pure, numpy at most."""
