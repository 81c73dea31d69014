// Package wheel is a timer wheel: it says which buckets are due. It is pure: time is an argument, in microseconds.
package wheel
