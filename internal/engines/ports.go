package engines

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are below Linux's ephemeral range, so no outgoing connection can take one while its engine is down.
const (
	firstPort = 20000
	lastPort  = 32000
)

// ports are reserved for as long as they are open. A reservation is the UDP socket of the same number, so other
// processes that use this package see it. The operating system releases it with its owner. The engine takes the TCP
// port.
type ports struct {
	numbers []int
	holds   []*net.UDPConn
}

func reservePorts(n int) (*ports, error) {
	p := &ports{}
	for range 1000 {
		if len(p.numbers) == n {
			return p, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		hold, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue
		}
		tcp, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
		if err != nil {
			hold.Close()
			continue
		}
		tcp.Close()
		p.numbers, p.holds = append(p.numbers, port), append(p.holds, hold)
	}
	return nil, errors.Join(fmt.Errorf("engines: no %d free ports between %d and %d", n, firstPort, lastPort), p.release())
}

func (p *ports) release() error {
	var errs []error
	for _, h := range p.holds {
		errs = append(errs, h.Close())
	}
	p.holds = nil
	return errors.Join(errs...)
}
