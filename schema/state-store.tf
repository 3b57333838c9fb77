variable "table_name" {
  description = "Name of kinesumer's state store. Many applications can share one."
  type        = string
  default     = "kinesumer-state-store"
}

variable "point_in_time_recovery" {
  description = "Keep backups of the last 35 days. AWS bills them."
  type        = bool
  default     = true
}

variable "deletion_protection" {
  description = "Refuse to delete the table."
  type        = bool
  default     = true
}

resource "aws_dynamodb_table" "kinesumer_state_store" {
  name         = var.table_name
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  deletion_protection_enabled = var.deletion_protection

  point_in_time_recovery {
    enabled = var.point_in_time_recovery
  }

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
