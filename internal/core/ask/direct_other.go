//go:build !linux

package ask

// Free gives back nothing here.
func (l *Line) Free() {}

// quiet changes nothing here: the line is the runtime's to watch.
func (l *Line) quiet() {}
