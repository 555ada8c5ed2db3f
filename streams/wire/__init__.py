"""How is it written? Bytes ↔ values; knows no Kafka, no loop, no clock."""
