package mysql

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/posthouse/posthouse/internal/model"
)

// An outcome is written again while the server is in a bad state, and given up
// where it is at fault itself.
func TestCodesOfErrors(t *testing.T) {
	for want, numbers := range map[model.Code][]uint16{
		model.CodeUnavailable: {
			1015, 1016, 1020, 1021, 1024, 1026, 1030, 1034, 1036, 1037, 1038, 1040, 1041, 1042, 1043, 1044, 1045, 1047, 1049, 1053, 1105, 1114,
			1129, 1130, 1135, 1142, 1152, 1154, 1156, 1158, 1159, 1160, 1161, 1180, 1181, 1184, 1194, 1197, 1203, 1205, 1206, 1207, 1213, 1223, 1226,
			1290, 1297, 1317, 1467, 1598, 1637, 1792, 1815, 1836, 1874, 1927, 1969, 2003, 2006, 2013, 2055, 3019, 3024, 3032, 3092, 3096, 3100, 3101,
			3168, 3169, 3170, 3572, 3796, 3797, 3798, 3989, 4031, 9001,
		},
		model.CodeRejected: {1048, 1062, 1118, 1153, 1264, 1265, 1292, 1300, 1366, 1406, 3819, 4025},
		model.CodeSchema:   {1054, 1146},
		model.CodeInternal: {1064, 1242, 1305, 3140},
	} {
		for _, number := range numbers {
			if got := codeOf(&mysql.MySQLError{Number: number}); got != want {
				t.Errorf("AC-9 error %d is %q, want %q", number, got, want)
			}
		}
	}
	for _, number := range []uint16{1062, 1064, 1105, 1815, 9001} {
		if text := textOf(&mysql.MySQLError{Number: number, Message: "near 'secret'"}); strings.Contains(text, "secret") {
			t.Errorf("AC-7 error %d shows %q", number, text)
		}
	}
}
