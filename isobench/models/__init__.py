"""Pretrained encoders, their tokenizers and heads."""
