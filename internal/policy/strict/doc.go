// Package strict reads YAML so that nothing is left out: every fault is collected with its line, unknown and repeated
// keys are faults, and what may not be empty must say something. It knows nothing of what a document means. Read
// yaml.go first.
package strict
