"""What is measured of a trained net."""
