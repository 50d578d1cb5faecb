"""The driver of an invented cloud of plain virtual machines, as far as planning needs one: test_new_driver.py."""
