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

// Attribute is one thing that a gateway knows of a request, by a name that the policy uses. An empty value is as
// good as none. Of several attributes of one name the first counts.
type Attribute struct{ Name, Value string }

// Tenant names the tenant, whose plan applies.
func Tenant(id string) Attribute { return Attribute{AttrTenant, id} }

// User names who asks, within the tenant.
func User(id string) Attribute { return Attribute{AttrUser, id} }

// IP says where the request comes from: an address without a port.
func IP(address string) Attribute { return Attribute{AttrIP, address} }

// Endpoint says what is asked for, such as "POST /orders".
func Endpoint(name string) Attribute { return Attribute{AttrEndpoint, name} }

// Method says how it is asked for, such as "POST".
func Method(name string) Attribute { return Attribute{AttrMethod, name} }

// Priority is low, normal or high, for limits with a reserve.
func Priority(level string) Attribute { return Attribute{AttrPriority, level} }

// attributesOf hands the caller's attributes to the core without copying them: the
// two types have one layout, which the conversion below lets the compiler check.
func attributesOf(a []Attribute) []limit.Attribute {
	return *(*[]limit.Attribute)(unsafe.Pointer(&a))
}

var _ = limit.Attribute(Attribute{})
