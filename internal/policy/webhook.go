package policy

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Webhook is where alerts are delivered. Its secret is not in the document: only the name
// of the variable or file that a server reads it from.
type Webhook struct {
	Name       string
	URL        string
	SecretEnv  string
	SecretFile string
}

// Webhooks returns where alerts may go, by name.
func (d *Document) Webhooks() []Webhook { return d.webhooks }

func (p *parser) webhooks(fd field) {
	f := p.f
	list := mapping(f, fd.node, "webhooks")
	if len(list) > MaxWebhooks {
		f.add(fd.line, "webhooks has %d elements; at most %d are allowed", len(list), MaxWebhooks)
	}
	for _, e := range list {
		w, what := Webhook{Name: e.name}, "webhook "+e.name
		if !limit.ValidName(e.name) {
			f.add(e.line, "%s is not a name; a webhook's name has 1 to %d of the characters A-Z a-z 0-9 . _ -", limit.Quote(e.name), limit.MaxNameLen)
		}
		if isNull(e.node) {
			f.add(e.line, "%s says nothing; give it url and secret", what)
		}
		given := map[string]bool{}
		for _, k := range mapping(f, e.node, what) {
			given[k.name] = true
			switch k.name {
			case "url":
				if word(f, k, what, &w.URL); w.URL != "" {
					if problem := urlProblem(w.URL); problem != "" {
						f.add(k.line, "url of %s: %s", what, problem)
					}
				}
			case "secret":
				p.secret(k, &w, what)
			default:
				unknown(f, k, what, "url", "secret")
			}
		}
		if e.node.Kind == yaml.MappingNode && (!given["url"] || !given["secret"]) {
			f.add(e.line, "%s needs a url and a secret, such as {url: \"https://hooks.example.com/quota\", secret: {env: %sOPS}}", what, SecretPrefix)
		}
		p.doc.webhooks = append(p.doc.webhooks, w)
	}
	slices.SortFunc(p.doc.webhooks, func(a, b Webhook) int { return strings.Compare(a.Name, b.Name) })
}

// urlProblem says why nothing may be sent there; empty if it may.
func urlProblem(s string) string {
	u, err := url.Parse(s)
	switch {
	case len(s) > maxURL:
		return fmt.Sprintf("it has %d bytes; at most %d are allowed", len(s), maxURL)
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return "write an address such as https://hooks.example.com/quota"
	case u.User != nil:
		return "it holds a user or a password, which a document must not; deliveries are signed instead"
	case u.Fragment != "":
		return "what follows # is never sent; leave it out"
	case u.Scheme == "https", u.Scheme == "http" && Loopback(u.Hostname()):
		return ""
	}
	return "it must begin with https:// (http:// only to localhost and loopback addresses)"
}

// Loopback reports whether a host is this machine by its name or address.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (p *parser) secret(fd field, w *Webhook, what string) {
	f := p.f
	what = "secret of " + what
	if fd.node.Kind != yaml.MappingNode {
		f.add(fd.line, "%s must say where the server reads it, {env: %sNAME} or {file: /PATH}: a document holds no secrets", what, SecretPrefix)
		return
	}
	for _, k := range mapping(f, fd.node, what) {
		switch k.name {
		case "env":
			word(f, k, what, &w.SecretEnv)
			if name, ok := strings.CutPrefix(w.SecretEnv, SecretPrefix); w.SecretEnv != "" && (!ok || !limit.ValidName(name) || strings.ContainsAny(name, ".-")) {
				f.add(k.line, "env of %s is %s; it must be the name of a variable that begins with %s", what, limit.Quote(w.SecretEnv), SecretPrefix)
			}
		case "file":
			word(f, k, what, &w.SecretFile)
			if w.SecretFile != "" && (!filepath.IsAbs(w.SecretFile) || !limit.ValidValue(w.SecretFile)) {
				f.add(k.line, "file of %s is %s; it must be a path from the root, such as /etc/quota/webhook.secret", what, limit.Quote(w.SecretFile))
			}
		default:
			unknown(f, k, what, "env", "file")
		}
	}
	if (w.SecretEnv == "") == (w.SecretFile == "") {
		f.add(fd.line, "%s needs one of env and file", what)
	}
}

func (p *parser) webhookNames(fd field, what string) []string {
	are := "the document has no webhooks"
	for i, w := range p.doc.webhooks {
		if i == 0 {
			are = "the webhooks are " + w.Name
		} else {
			are += ", " + w.Name
		}
	}
	known := func(name string) bool {
		return slices.ContainsFunc(p.doc.webhooks, func(w Webhook) bool { return w.Name == name })
	}
	return p.names(fd, what, limit.ValidName, known, are)
}

// String says where the webhook is and whence its secret comes.
func (w Webhook) String() string {
	if w.SecretFile != "" {
		return w.URL + ", secret of file " + w.SecretFile
	}
	return w.URL + ", secret of variable " + w.SecretEnv
}
