"""Schemas in the forms of other tools: tf.io specs, TFX, TFDS, label maps."""
