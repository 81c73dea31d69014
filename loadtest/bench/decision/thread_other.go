//go:build !linux

package main

import "time"

var began = time.Now()

// threadTime is the elapsed time: the machine should have nothing else to do.
func threadTime() time.Duration { return time.Since(began) }
