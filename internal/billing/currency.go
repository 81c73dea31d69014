package billing

import (
	"fmt"
	"math/big"
	"strings"
)

// currencies are the ISO 4217 codes of money that is paid in, with the digits of their minor unit. Funds, metals and
// codes for testing are left out.
var currencies = func() map[string]int {
	byDigits := map[int]string{
		0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF",
		2: `AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC
			CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR
			JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD
			NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN
			SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG`,
		3: "BHD IQD JOD KWD LYD OMR TND",
	}
	all := make(map[string]int)
	for digits, codes := range byDigits {
		for code := range strings.FieldsSeq(codes) {
			all[code] = digits
		}
	}
	return all
}()

// CheckCurrency reports a code that no currency of ISO 4217 has.
func CheckCurrency(code string) error {
	if _, ok := currencies[code]; !ok {
		return fmt.Errorf("%q is not a currency; write a code of ISO 4217 in capitals, such as USD", clip(code))
	}
	return nil
}

// Money is a sum in minor units: cents of USD, whole JPY, thousandths of KWD.
type Money struct {
	Amount   int64
	Currency string
}

// ParseMoney reads an amount and its currency, such as 49.00 USD, exact to the minor unit.
func ParseMoney(s string) (Money, error) {
	number, code, ok := strings.Cut(s, " ")
	if !ok {
		return Money{}, fmt.Errorf("%q is not an amount of money; write one such as 49.00 USD", clip(s))
	}
	if err := CheckCurrency(code); err != nil {
		return Money{}, err
	}
	d, err := ParseDecimal(number)
	if err != nil {
		return Money{}, err
	}
	digits := currencies[code]
	if int(d.scale) > digits {
		return Money{}, fmt.Errorf("%s is finer than a currency's minor unit: %s has %d digits after the point", clip(s), code, digits)
	}
	amount, err := round(new(big.Rat).Mul(d.rat(), new(big.Rat).SetInt(power(digits))))
	if err != nil {
		return Money{}, fmt.Errorf("%s is too much; at most %s are allowed", clip(s), Money{MaxAmount, code})
	}
	return Money{amount, code}, nil
}

// String writes the sum as ParseMoney reads it.
func (m Money) String() string { return point(m.Amount, currencies[m.Currency]) + " " + m.Currency }
