# Least squares, with relative errors: the first line names the columns, each other line is NAME TIME COUNT... Lines whose name
# begins with '?' are predicted only. Prints the price of each column with its standard error, and each line beside its fit.
NR == 1 { columns = NF - 2; for (i = 1; i <= columns; i++) column[i] = $(i + 2); next }
{
    names++; name[names] = $1; time[names] = $2
    for (i = 1; i <= columns; i++) count[names, i] = $(i + 2)
    if ($1 ~ /^[?]/) next
    fitted++
    for (i = 1; i <= columns; i++) {
        for (j = 1; j <= columns; j++) square[i, j] += $(i + 2) * $(j + 2) / ($2 * $2)
        right[i] += $(i + 2) / $2
    }
}
END {
    # the inverse of the square, by Gauss and Jordan
    for (i = 1; i <= columns; i++) for (j = 1; j <= columns; j++) inverse[i, j] = i == j
    for (i = 1; i <= columns; i++) {
        pivot = i
        for (k = i; k <= columns; k++) if (square[k, i] ^ 2 > square[pivot, i] ^ 2) pivot = k
        if (square[pivot, i] == 0) { print "these images do not tell " column[i] " from the others"; exit 1 }
        for (j = 1; j <= columns; j++) {
            t = square[i, j]; square[i, j] = square[pivot, j]; square[pivot, j] = t
            t = inverse[i, j]; inverse[i, j] = inverse[pivot, j]; inverse[pivot, j] = t
        }
        t = square[i, i]
        for (j = 1; j <= columns; j++) { square[i, j] /= t; inverse[i, j] /= t }
        for (k = 1; k <= columns; k++) if (k != i) {
            t = square[k, i]
            for (j = 1; j <= columns; j++) { square[k, j] -= t * square[i, j]; inverse[k, j] -= t * inverse[i, j] }
        }
    }
    for (i = 1; i <= columns; i++) for (j = 1; j <= columns; j++) price[i] += inverse[i, j] * right[j]
    for (n = 1; n <= names; n++) {
        for (i = 1; i <= columns; i++) guess[n] += price[i] * count[n, i]
        if (name[n] !~ /^[?]/) rest += (guess[n] / time[n] - 1) ^ 2
    }
    spread = fitted > columns ? rest / (fitted - columns) : 0
    print "price, in nanoseconds"
    for (i = 1; i <= columns; i++)
        printf "  %-8s %10.1f +- %.1f\n", column[i], price[i] * 1000, sqrt(spread * inverse[i, i]) * 1000
    print "image, measured and fitted, in microseconds"
    for (n = 1; n <= names; n++) printf "  %-16s %12.1f %12.1f %7.3f\n", name[n], time[n], guess[n], guess[n] / time[n]
}
