"""Decoders for Avro, Protobuf and schema registries: values of ``decode=``."""

from kinesumer.decoding.avro import AvroDecoder
from kinesumer.decoding.confluent import ConfluentDecoder
from kinesumer.decoding.glue import GlueDecoder
from kinesumer.decoding.protobuf import ProtobufDecoder

__all__ = ["AvroDecoder", "ConfluentDecoder", "GlueDecoder", "ProtobufDecoder"]
