package integration

import (
	"os"
	"testing"

	"github.com/f4ee788f/quota/internal/testenv"
)

func TestMain(m *testing.M) {
	code := testenv.Main(m)
	if binaries != "" {
		os.RemoveAll(binaries)
	}
	os.Exit(code)
}
