package ask

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec falls back on
	"google.golang.org/grpc/mem"
)

// Codec carries frames over gRPC, and everything else as gRPC itself would: on the wire both are
// protobuf.
type Codec struct{}

var plain = encoding.GetCodecV2("proto")

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2. A frame may be used again when it returns.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*Frame)
	if !ok {
		return plain.Marshal(v)
	}
	return mem.BufferSlice{mem.Copy(f.buf, mem.DefaultBufferPool())}, nil
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*Frame)
	if !ok {
		return plain.Unmarshal(data, v)
	}
	f.Reset()
	size := data.Len()
	if size > MaxBytes {
		return fmt.Errorf("%w: %d bytes; at most %d", ErrFrame, size, MaxBytes)
	}
	if cap(f.buf) < size {
		f.buf = make([]byte, size)
	}
	f.buf = f.buf[:size]
	data.CopyTo(f.buf)
	return nil
}
