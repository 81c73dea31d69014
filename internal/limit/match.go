package limit

// Match holds when the attribute's value has one of the patterns' forms: the
// exact value, a prefix followed by "*", "*" for any value, or for the attribute
// ip a CIDR block. An absent attribute matches nothing.
type Match struct {
	Attribute string
	Patterns  []string
}
