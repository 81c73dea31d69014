package usage

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Wrap(m)) }
