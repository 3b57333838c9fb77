variable "table_name" {
  description = "Name of kinesumer's state store. Many applications can share one."
  type        = string
  default     = "kinesumer-state-store"
}

resource "aws_dynamodb_table" "kinesumer_state_store" {
  name         = var.table_name
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  attribute {
    name = "last_update"
    type = "S"
  }

  local_secondary_index {
    name            = "index-client-key-last-update"
    range_key       = "last_update"
    projection_type = "KEYS_ONLY"
  }

  lifecycle {
    # It holds how far every application has read.
    prevent_destroy = true
  }
}

output "kinesumer_state_store_arn" {
  value = aws_dynamodb_table.kinesumer_state_store.arn
}
