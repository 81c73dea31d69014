// Package strict reads YAML so that nothing is left out. Every fault is collected with its line; unknown and repeated
// keys are faults, and required keys must say something. It does not know what a document means. Read yaml.go first.
package strict
