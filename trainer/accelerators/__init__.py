"""Devices behind one small adapter: the loop names none of them."""
