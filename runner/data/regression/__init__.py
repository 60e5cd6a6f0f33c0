"""Tables of numbers, one column of which is predicted from the others."""
