package billing

import (
	"errors"
	"math/big"
	"testing"
)

func TestDecimal(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "0.0": "0", "1": "1", "007": "7", "49.00": "49", "0.0005": "0.0005", "12.50": "12.5",
		"0.000000000001": "0.000000000001", "999999999999999999": "999999999999999999", "0.10": "0.1",
	} {
		d, err := ParseDecimal(text)
		if err != nil || d.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", "0x1", "1,000", "1_000", " 1", "1.2.3", "NaN",
		"0.0000000000001", "1000000000000000000", "1234567.123456789012", "٣"} {
		if d, err := ParseDecimal(text); err == nil {
			t.Errorf("%q is %s; want a refusal", text, d)
		}
	}
}

// Equal numbers compare equal, so that a price written otherwise is the same price.
func TestDecimalIsComparable(t *testing.T) {
	a, _ := ParseDecimal("0.50")
	b, _ := ParseDecimal("00.5")
	if a != b {
		t.Errorf("%#v and %#v differ", a, b)
	}
}

func TestRoundHalfEven(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1/2": 0, "3/2": 2, "5/2": 2, "7/2": 4, "-1/2": 0, "-3/2": -2, "-5/2": -2, "1/3": 0, "2/3": 1, "-2/3": -1,
		"499999999999/1000000000000": 0, "500000000001/1000000000000": 1, "9007199254740991": MaxAmount,
	} {
		r, _ := new(big.Rat).SetString(text)
		if got, err := round(r); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"9007199254740992", "-9007199254740992", "1000000000000000000000000"} {
		r, _ := new(big.Rat).SetString(text)
		if got, err := round(r); !errors.Is(err, ErrAmount) {
			t.Errorf("%s: %d, %v; want %v", text, got, err, ErrAmount)
		}
	}
}

func TestMoney(t *testing.T) {
	for text, want := range map[string]string{
		"49.00 USD": "49.00 USD", "49 USD": "49.00 USD", "0.5 EUR": "0.50 EUR", "500 JPY": "500 JPY", "1.234 KWD": "1.234 KWD",
		"90071992547409.91 USD": "90071992547409.91 USD",
	} {
		m, err := ParseMoney(text)
		if err != nil || m.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, m, err, want)
		}
	}
	for _, text := range []string{"49", "USD", "49 usd", "49 XXX", "49.001 USD", "500.5 JPY", "49.00  USD", "49.00 USD ", "-1 USD", "90071992547409.92 USD"} {
		if m, err := ParseMoney(text); err == nil {
			t.Errorf("%q is %s; want a refusal", text, m)
		}
	}
	if s := (Money{-5, "USD"}).String(); s != "-0.05 USD" {
		t.Errorf("minus five cents are %s", s)
	}
}
