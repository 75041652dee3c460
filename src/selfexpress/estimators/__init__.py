"""The scikit-learn faces: settings in, fitted attributes out."""
