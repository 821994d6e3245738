"""The knowledge base in forms that other programs take."""
