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
	"github.com/f4ee788f/quota/internal/policy/strict"
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

func (p *parser) webhooks(fd strict.Field) {
	f := p.f
	list := strict.Mapping(f, fd.Node, "webhooks")
	if len(list) > MaxWebhooks {
		f.Add(fd.Line, "webhooks has %d elements; at most %d are allowed", len(list), MaxWebhooks)
	}
	for _, e := range list {
		w, what := Webhook{Name: e.Name}, "webhook "+e.Name
		if !limit.ValidName(e.Name) {
			f.Add(e.Line, "%s is not a name; a webhook's name has 1 to %d of the characters A-Z a-z 0-9 . _ -", limit.Quote(e.Name), limit.MaxNameLen)
		}
		if strict.IsNull(e.Node) {
			f.Add(e.Line, "%s says nothing; give it url and secret", what)
		}
		given := map[string]bool{}
		for _, k := range strict.Mapping(f, e.Node, what) {
			given[k.Name] = true
			switch k.Name {
			case "url":
				if strict.Word(f, k, what, &w.URL); w.URL != "" {
					if problem := urlProblem(w.URL); problem != "" {
						f.Add(k.Line, "url of %s: %s", what, problem)
					}
				}
			case "secret":
				p.secret(k, &w, what)
			default:
				strict.Unknown(f, k, what, "url", "secret")
			}
		}
		if e.Node.Kind == yaml.MappingNode && (!given["url"] || !given["secret"]) {
			f.Add(e.Line, "%s needs a url and a secret, such as {url: \"https://hooks.example.com/quota\", secret: {env: %sOPS}}", what, SecretPrefix)
		}
		p.doc.webhooks = append(p.doc.webhooks, w)
	}
	slices.SortFunc(p.doc.webhooks, func(a, b Webhook) int { return strings.Compare(a.Name, b.Name) })
}

// urlProblem says why alerts may not be sent to a URL; empty if they may.
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

func (p *parser) secret(fd strict.Field, w *Webhook, what string) {
	f := p.f
	what = "secret of " + what
	if fd.Node.Kind != yaml.MappingNode {
		f.Add(fd.Line, "%s must say where the server reads it, {env: %sNAME} or {file: /PATH}: a document holds no secrets", what, SecretPrefix)
		return
	}
	for _, k := range strict.Mapping(f, fd.Node, what) {
		switch k.Name {
		case "env":
			strict.Word(f, k, what, &w.SecretEnv)
			if name, ok := strings.CutPrefix(w.SecretEnv, SecretPrefix); w.SecretEnv != "" && (!ok || !limit.ValidName(name) || strings.ContainsAny(name, ".-")) {
				f.Add(k.Line, "env of %s is %s; it must be the name of a variable that begins with %s", what, limit.Quote(w.SecretEnv), SecretPrefix)
			}
		case "file":
			strict.Word(f, k, what, &w.SecretFile)
			if w.SecretFile != "" && (!filepath.IsAbs(w.SecretFile) || !limit.ValidValue(w.SecretFile)) {
				f.Add(k.Line, "file of %s is %s; it must be a path from the root, such as /etc/quota/webhook.secret", what, limit.Quote(w.SecretFile))
			}
		default:
			strict.Unknown(f, k, what, "env", "file")
		}
	}
	if (w.SecretEnv == "") == (w.SecretFile == "") {
		f.Add(fd.Line, "%s needs one of env and file", what)
	}
}

func (p *parser) webhookNames(fd strict.Field, what string) []string {
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

// String says where the webhook is and where its secret comes from.
func (w Webhook) String() string {
	if w.SecretFile != "" {
		return w.URL + ", secret of file " + w.SecretFile
	}
	return w.URL + ", secret of variable " + w.SecretEnv
}
