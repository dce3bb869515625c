#!/bin/bash
for model in first second third; do
  vllm serve "$model" --port 8000 > "$model.log" 2>&1 &
  server=$!
  until curl -sf localhost:8000/health; do sleep 1; done
  python bench.py --model "$model"
  kill "$server"
  wait "$server" || true
done
