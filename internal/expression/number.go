package expression

import (
	"strconv"
	"strings"

	"github.com/cockroachdb/apd/v3"
)

// Numbers are exact decimals within these bounds. What lies beyond is "out of range", and that is found before anything is computed: 1e1000000000
// costs nothing.
const (
	maxDigits   = 1_000  // significant digits
	maxExponent = 10_000 // power of ten of the leading digit, either way
)

// numberError says why a text or a result is no number.
type numberError string

func (e numberError) Error() string { return string(e) }

const (
	errRange  numberError = "out of range for a number"
	errSyntax numberError = "not the text of a number"
	errWhole  numberError = "not a whole number"
	errZero   numberError = "a remainder of a division by zero"
)

// exact adds, subtracts and multiplies without rounding (its precision is 0).
var exact = apd.BaseContext

// parseNumber reads digits with an optional sign, fraction and exponent into d.
func parseNumber(s string, d *apd.Decimal) error {
	if n, ok := shortInteger(s); ok {
		d.SetInt64(n)
		return nil
	}
	negative := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	var exponent int64
	if at := strings.IndexAny(s, "eE"); at >= 0 {
		var ok bool
		if exponent, ok = parseExponent(s[at+1:]); !ok {
			return errSyntax
		}
		s = s[:at]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" && fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return errSyntax
	}
	fraction = strings.TrimRight(fraction, "0") // they carry no weight
	exponent -= int64(len(fraction))
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		d.SetInt64(0)
		return nil
	}
	if leading := exponent + int64(len(digits)) - 1; len(digits) > maxDigits || leading > maxExponent || leading < -maxExponent {
		return errRange
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		d.SetFinite(n, int32(exponent))
	} else {
		d.SetFinite(0, int32(exponent))
		if _, ok := d.Coeff.SetString(digits, 10); !ok {
			return errSyntax
		}
	}
	d.Negative = negative
	return nil
}

// shortInteger reads an integer of at most 18 digits, which nearly every number is.
func shortInteger(s string) (int64, bool) {
	digits := s
	if digits != "" && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	var n int64
	for i := range len(digits) {
		c := digits[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	if len(digits) < len(s) {
		n = -n
	}
	return n, true
}

// parseExponent reads a signed integer. Beyond a billion its size no longer matters: it stays far outside every bound.
func parseExponent(s string) (int64, bool) {
	negative := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if s == "" || !allDigits(s) {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		n = min(n*10+int64(s[i]-'0'), 1<<40)
	}
	if negative {
		n = -n
	}
	return n, true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// parseLiteral reads a number as expr writes it: also 1_000, 0x1F, 0o17, 0b1.
func parseLiteral(s string) (*apd.Decimal, error) {
	s = strings.ReplaceAll(s, "_", "")
	d := new(apd.Decimal)
	if len(s) < 2 || s[0] != '0' || !strings.ContainsRune("xXoObB", rune(s[1])) {
		return d, parseNumber(s, d)
	}
	if _, ok := d.Coeff.SetString(s, 0); !ok || d.Coeff.Sign() < 0 {
		return nil, errSyntax
	}
	return d, inRange(d)
}

// inRange checks a result against the bounds.
func inRange(d *apd.Decimal) error {
	if d.IsZero() {
		d.SetInt64(0)
		return nil
	}
	n := d.NumDigits()
	if leading := int64(d.Exponent) + n - 1; n > maxDigits || leading > maxExponent || leading < -maxExponent {
		return errRange
	}
	return nil
}

// arithmetic computes x op y exactly; op is one of + - * %. The sign of a remainder is that of x.
func arithmetic(op string, x, y *apd.Decimal) (*apd.Decimal, error) {
	d := new(apd.Decimal)
	if op == "%" && y.IsZero() {
		return nil, errZero
	}
	if op != "*" {
		switch {
		case y.IsZero():
			return d.Set(x), nil
		case x.IsZero() && op == "-":
			return d.Neg(y), nil
		case x.IsZero() && op == "+":
			return d.Set(y), nil
		case x.IsZero():
			return d, nil
		}
		// Brought to one exponent, neither may grow beyond the bounds: the sum of 1e9000 and 1e-9000 has 18,001 digits.
		low := min(x.Exponent, y.Exponent)
		if max(x.NumDigits()+int64(x.Exponent), y.NumDigits()+int64(y.Exponent))-int64(low) > maxDigits {
			return nil, errRange
		}
	}
	var err error
	switch op {
	case "+":
		_, err = exact.Add(d, x, y)
	case "-":
		_, err = exact.Sub(d, x, y)
	case "*":
		_, err = exact.Mul(d, x, y)
	case "%":
		remainder(d, x, y)
	}
	if err != nil {
		return nil, errRange
	}
	return d, inRange(d)
}

// remainder sets d to what is left of x after taking y away as often as it goes: exact, unlike apd's own, which rounds.
func remainder(d, x, y *apd.Decimal) {
	low := min(x.Exponent, y.Exponent)
	var a, b apd.BigInt
	d.Coeff.Rem(scaled(&a, x, low), scaled(&b, y, low))
	d.Exponent = low
	d.Negative = x.Negative
}

// scaled sets z to x's coefficient at the lower exponent.
func scaled(z *apd.BigInt, x *apd.Decimal, exponent int32) *apd.BigInt {
	z.Exp(apd.NewBigInt(10), apd.NewBigInt(int64(x.Exponent-exponent)), nil)
	return z.Mul(z, &x.Coeff)
}

// formatNumber writes a number in the one form that equal numbers share: 1, 1.0 and 10e-1 are all "1". Up to 21 places it is written out,
// beyond with an exponent: "1e+400", "1.5e-7".
func formatNumber(d *apd.Decimal) string {
	if d.IsZero() {
		return "0"
	}
	all := d.Coeff.String()
	digits := strings.TrimRight(all, "0")
	exponent := int(d.Exponent) + len(all) - len(digits)
	leading := exponent + len(digits) - 1
	var b strings.Builder
	if d.Negative {
		b.WriteByte('-')
	}
	switch {
	case leading < -6 || leading > 20:
		b.WriteString(digits[:1])
		if len(digits) > 1 {
			b.WriteString("." + digits[1:])
		}
		b.WriteByte('e')
		if leading > 0 {
			b.WriteByte('+')
		}
		b.WriteString(strconv.Itoa(leading))
	case exponent >= 0:
		b.WriteString(digits + strings.Repeat("0", exponent))
	case leading < 0:
		b.WriteString("0." + strings.Repeat("0", -leading-1) + digits)
	default:
		b.WriteString(digits[:leading+1] + "." + digits[leading+1:])
	}
	return b.String()
}

// integral says whether d is a whole number.
func integral(d *apd.Decimal) bool {
	if d.Exponent >= 0 || d.IsZero() {
		return true
	}
	all := d.Coeff.String()
	return len(all)-len(strings.TrimRight(all, "0")) >= -int(d.Exponent)
}
