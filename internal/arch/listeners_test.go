package arch_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every listener has the bounds of internal/listen: nobody else makes a server by HTTP, nor serves without one, and who makes one of gRPC bounds it.
func TestEveryListenerIsBounded(t *testing.T) {
	var names []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if name, _ := filepath.Rel("../..", path); err == nil && !d.IsDir() && strings.HasSuffix(name, ".go") {
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/listen/") || strings.HasPrefix(name, "loadtest/bench/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue // deleted
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			continue // somebody else's
		}
		files++
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if ok && x.Name == "grpc" && s.Sel.Name == "NewServer" && !strings.HasPrefix(name, "loadtest/") {
				for _, bound := range []string{"grpc.MaxHeaderListSize(", "grpc.MaxConcurrentStreams(", "grpc.MaxRecvMsgSize(", "listen.Bounded("} {
					if !bytes.Contains(text, []byte(bound)) {
						t.Errorf("%s: a gRPC server without %s", fset.Position(s.Pos()), bound)
					}
				}
				// Of the quota server, the gate bounds the streams that watch health; its own test says so.
				if !bytes.Contains(text, []byte("listen.NewHealth()")) && !bytes.Contains(text, []byte("gate.Options()")) {
					t.Errorf("%s: a gRPC server on which health may be watched without a bound", fset.Position(s.Pos()))
				}
			}
			if !ok || x.Name != "http" {
				return true
			}
			switch s.Sel.Name {
			case "ListenAndServe", "ListenAndServeTLS", "Serve", "ServeTLS":
				t.Errorf("%s: http.%s has no bounds; use internal/listen", fset.Position(s.Pos()), s.Sel.Name)
			}
			return true
		})
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if s, ok := c.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Server" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "http" {
					t.Errorf("%s: an http.Server of its own; use internal/listen", fset.Position(c.Pos()))
				}
			}
			return true
		})
	}
	if files < 300 {
		t.Errorf("only %d files were looked at", files)
	}
}
