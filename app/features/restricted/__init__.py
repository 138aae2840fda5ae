"""Restricted values of handle servers, for authorised readers."""
