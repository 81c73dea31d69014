package authn

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// largeAnswer is the size from which an answer is counted until it is sent, in bytes.
const largeAnswer = 16 << 10

// answers is gRPC's codec. It counts the bytes of large answers from when they are encoded until gRPC has sent them. An
// answer that its caller does not read stays in memory after its call has ended, where no other bound counts it.
type answers struct{ unread atomic.Int64 }

var usual = encoding.GetCodecV2(proto.Name)

// Name implements encoding.CodecV2.
func (*answers) Name() string { return proto.Name }

// Unmarshal implements encoding.CodecV2.
func (*answers) Unmarshal(data mem.BufferSlice, v any) error { return usual.Unmarshal(data, v) }

// Marshal implements encoding.CodecV2.
func (a *answers) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(protobuf.Message)
	if !ok {
		return usual.Marshal(v)
	}
	size := protobuf.Size(m)
	if size < largeAnswer {
		return usual.Marshal(v)
	}
	l := &answer{of: a, size: int64(size)}
	buf := l.Get(size)
	if _, err := (protobuf.MarshalOptions{UseCachedSize: true}).MarshalAppend((*buf)[:0], m); err != nil {
		l.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, l)}, nil
}

// answer is a counted answer. It is the pool of its own buffer, so gRPC tells it when the buffer is free. When a
// connection ends, gRPC forgets the buffer; then the garbage collector tells.
type answer struct {
	of        *answers
	size      int64
	done      atomic.Bool
	forgotten runtime.Cleanup
}

// Get implements mem.BufferPool.
func (l *answer) Get(n int) *[]byte {
	l.of.unread.Add(l.size)
	buf := mem.DefaultBufferPool().Get(n)
	l.forgotten = runtime.AddCleanup(buf, (*answer).end, l)
	return buf
}

// Put implements mem.BufferPool.
func (l *answer) Put(buf *[]byte) {
	l.forgotten.Stop()
	l.end()
	mem.DefaultBufferPool().Put(buf)
}

func (l *answer) end() {
	if !l.done.Swap(true) {
		l.of.unread.Add(-l.size)
	}
}
