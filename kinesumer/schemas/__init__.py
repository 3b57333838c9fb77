"""Decoders for Avro, Protobuf and schema registries: values of ``decode=``."""

from kinesumer.schemas.avro import AvroDecoder
from kinesumer.schemas.confluent import ConfluentDecoder
from kinesumer.schemas.glue import GlueDecoder
from kinesumer.schemas.protobuf import ProtobufDecoder

__all__ = ["AvroDecoder", "ConfluentDecoder", "GlueDecoder", "ProtobufDecoder"]
