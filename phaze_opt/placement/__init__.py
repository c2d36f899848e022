"""Pipeline, tensor and data parallel placement: exact dynamic program and its check."""
