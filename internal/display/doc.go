// Package display is how text of others is shown to people: nothing of it acts upon the terminal or turns other text around (escape.go), and tables
// stand in columns whatever script it is in (table.go).
package display
