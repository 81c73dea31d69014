package client

import (
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Names of attributes with a meaning of their own. Any other name is the policy's choice.
const (
	AttrTenant   = "tenant"   // whose plan applies
	AttrUser     = "user"     // who asks, within the tenant
	AttrIP       = "ip"       // where the request comes from: an address without a port
	AttrEndpoint = "endpoint" // what is asked for, such as "POST /orders"
	AttrMethod   = "method"
	AttrPriority = "priority" // low, normal or high, for limits with a reserve; anything else is normal
)

// Attribute is one thing that a gateway knows of a request. An empty value is as
// good as none. Of several attributes of one name the first counts.
type Attribute struct{ Name, Value string }

// attributesOf hands the caller's attributes to the core without copying them: the
// two types have one layout, which the conversion below lets the compiler check.
func attributesOf(a []Attribute) []limit.Attribute {
	return *(*[]limit.Attribute)(unsafe.Pointer(&a))
}

var _ = limit.Attribute(Attribute{})
