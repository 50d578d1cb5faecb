"""What a model is before any framework builds it: parameters, first values, layouts, sizes. Pure; numpy at most."""
