package client

import (
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Attribute is one thing that a gateway knows of a request, by a name that the policy uses. The functions below return
// those whose names have a meaning of their own; any other name is the policy's choice. An empty value counts as none.
// Of several attributes of one name the first counts.
type Attribute struct{ Name, Value string }

// Tenant names the tenant, whose plan applies: attribute "tenant".
func Tenant(id string) Attribute { return Attribute{limit.AttrTenant, id} }

// User names who asks, within the tenant: attribute "user".
func User(id string) Attribute { return Attribute{"user", id} }

// IP says where the request comes from, an address without a port: attribute "ip".
func IP(address string) Attribute { return Attribute{limit.AttrIP, address} }

// Endpoint says what is asked for, such as "POST /orders": attribute "endpoint".
func Endpoint(name string) Attribute { return Attribute{"endpoint", name} }

// Method says how it is asked for, such as "POST": attribute "method".
func Method(name string) Attribute { return Attribute{"method", name} }

// Priority is "low", "normal" or "high", for limits with a reserve: attribute "priority". Anything else is normal.
func Priority(level string) Attribute { return Attribute{limit.AttrPriority, level} }

// attributesOf hands the caller's attributes to the core without copying them. The two types have one layout, which the
// conversion below lets the compiler check.
func attributesOf(a []Attribute) []limit.Attribute {
	return *(*[]limit.Attribute)(unsafe.Pointer(&a))
}

var _ = limit.Attribute(Attribute{})
