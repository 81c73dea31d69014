//go:build !linux

package ask

// Free gives back nothing here.
func (l *Line) Free() {}

func (l *Line) quiet() {}
