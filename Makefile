# The commands of README.md under short names.
.PHONY: run test package deploy

run:
	cargo run --release --bin recoup -- replay examples/day.jsonl

test:
	tests/run

package:
	tests/run --only package

deploy:
	sam build && sam deploy --guided
