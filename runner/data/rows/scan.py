"""Scan the text formats of extreme classification byte by byte, from a block of whole lines to CSR rows.

The loop is compiled because large sets have 10^8 tokens, too many for plain Python. It reports the line and the byte of
the first mistake.

Grammar, after the header if there is one (space = spaces or tabs, lines end in LF or CRLF):
    XC      labels? space (index:value space)*     labels = l1,l2,...; a row without labels starts with a space
    LIBSVM  (labels space)? (index:value space)*   the first token is a list of labels if it has no colon; a # and what
                                                   follows it in a line is a comment
    VW      label ... | (index(:value)? space)*    other text before `|` and the name of the namespace are ignored
"""

import numpy as np
from numba import njit

XC, LIBSVM, VW = 0, 1, 2

OK = 0
BAD_LABEL = 1
BAD_FEATURE = 2
BAD_VALUE = 3
NOT_FINITE = 4
LABEL_RANGE = 5
FEATURE_RANGE = 6
NO_BAR = 7

_INT32_MAX = 2**31 - 1
_FLOAT32_MAX = 3.4028235677973366e38  # half a step above the largest float32; from here rounding gives inf
_POWERS = 10.0 ** np.arange(23)  # these are exact, so values with up to 15 digits are rounded correctly


@njit(cache=True)
def _is_digit(byte):
    return byte >= 48 and byte <= 57


@njit(cache=True)
def _is_space(byte):
    return byte == 32 or byte == 9


@njit(cache=True)
def _read_integer(data, position, end):
    """Return (value, next position); without a digit the position does not move. The value saturates at 2^31."""
    value = 0
    while position < end and _is_digit(data[position]):
        value = min(value * 10 + (data[position] - 48), _INT32_MAX + 1)
        position += 1
    return value, position


@njit(cache=True)
def _read_float(data, position, end):
    """Return (value, next position, status) of a decimal number; "nan" and "inf" in any spelling are NOT_FINITE."""
    negative = False
    if position < end and (data[position] == 45 or data[position] == 43):
        negative = data[position] == 45
        position += 1
    if position < end and data[position] in (73, 78, 105, 110):  # I N i n
        return 0.0, position, NOT_FINITE
    mantissa = np.int64(0)
    digits = exponent = seen = 0
    point = False
    while position < end:
        byte = data[position]
        if _is_digit(byte):
            seen += 1
            if digits < 18:  # further digits are beyond double precision
                mantissa = mantissa * 10 + (byte - 48)
                digits += 1 if mantissa > 0 else 0
                exponent -= 1 if point else 0
            else:
                exponent += 0 if point else 1
        elif byte == 46 and not point:
            point = True
        else:
            break
        position += 1
    if seen == 0:
        return 0.0, position, BAD_VALUE
    if position < end and (data[position] == 101 or data[position] == 69):  # e E
        position += 1
        down = False
        if position < end and (data[position] == 45 or data[position] == 43):
            down = data[position] == 45
            position += 1
        size, after = _read_integer(data, position, end)
        if after == position:
            return 0.0, position, BAD_VALUE
        position = after
        size = min(size, 1_000_000)
        exponent += -size if down else size
    value = float(mantissa)
    if mantissa != 0:
        if -22 <= exponent <= 22:
            value = value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]
        elif exponent < -300:  # 10^-exponent alone would overflow; the product is zero in float32 anyway
            value = value * 10.0**-300 * 10.0 ** max(exponent + 300, -300)
        else:
            value = value * 10.0 ** min(exponent, 300)
    if value >= _FLOAT32_MAX:
        return value, position, NOT_FINITE
    return (-value if negative else value), position, OK


@njit(cache=True)
def _sort_pairs(keys, values, low, high):
    """Sort keys[low:high] and move the values along (Shell sort): rows are short and nearly always sorted already."""
    gap = 1
    while gap < (high - low) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(low + gap, high):
            key, value, j = keys[i], values[i], i
            while j >= low + gap and keys[j - gap] > key:
                keys[j] = keys[j - gap]
                values[j] = values[j - gap]
                j -= gap
            keys[j] = key
            values[j] = value
        gap //= 3


@njit(cache=True)
def count_bounds(data):
    """Return upper bounds of the numbers of (lines, features, labels) in a block of whole lines."""
    lines = features = labels = 0
    for byte in data:
        if byte == 10:
            lines += 1
        elif byte == 44:
            labels += 1
        elif byte == 58 or byte == 32 or byte == 9:  # VW features may lack the colon
            features += 1
    return lines, features + lines, labels + lines


@njit(cache=True)
def scan_block(
    data,  # (bytes) uint8, whole lines, the last byte is LF
    layout,  # XC, LIBSVM or VW
    feature_start,  # the first feature index in the file: 0 or 1
    label_start,
    num_features,  # exclusive bounds after subtracting the start
    num_classes,
    keep_unlabelled,
    row_sizes,  # this and the following are outputs, of the sizes that count_bounds gives
    indices,
    values,
    label_sizes,
    labels,
):
    """Scan a block and write its rows to the output arrays.

    Returns (status, line within the block, byte, lines, kept rows, nonzeros, label pairs, rows without labels,
    kept rows without features, largest feature, largest label).
    """
    total = len(data)
    position = line = kept = nonzeros = pairs = unlabelled = featureless = 0
    top_feature = top_label = -1
    scratch = np.zeros(1, np.float32)  # labels are sorted by the same routine as features
    status = OK
    while position < total:
        end = position
        while data[end] != 10 and not (layout == LIBSVM and data[end] == 35):
            end += 1
        after = end
        while data[after] != 10:
            after += 1
        has_comment = after > end
        after += 1
        if end > position and data[end - 1] == 13:
            end -= 1
        while has_comment and end > position and _is_space(data[end - 1]):
            end -= 1  # so that a line of blanks and a comment is a blank one
        if layout != XC and end == position:  # without a header that counts rows, a blank line is no row
            line += 1
            position = after
            continue
        first_pair, first_nonzero = pairs, nonzeros

        # Labels.
        has_labels = position < end and not _is_space(data[position])
        if layout == LIBSVM:
            look = position
            while look < end and not _is_space(data[look]):
                if data[look] == 58:
                    has_labels = False
                look += 1
        if layout == VW:
            has_labels = position < end and data[position] != 124 and not _is_space(data[position])
        ordered = True
        while has_labels:
            label, position_after = _read_integer(data, position, end)
            if position_after == position:
                status = BAD_LABEL
                break
            label -= label_start
            if label < 0 or label >= num_classes:
                status = LABEL_RANGE
                break
            position = position_after
            if pairs > first_pair and label <= labels[pairs - 1]:
                ordered = False
            labels[pairs] = label
            pairs += 1
            top_label = max(top_label, label)
            if layout != VW and position < end and data[position] == 44:
                position += 1
                continue
            if position < end and not _is_space(data[position]) and not (layout == VW and data[position] == 124):
                status = BAD_LABEL
            break
        if status != OK:
            break
        if not ordered:
            if len(scratch) < pairs - first_pair:
                scratch = np.zeros(2 * (pairs - first_pair), np.float32)
            row = labels[first_pair:pairs]
            _sort_pairs(row, scratch, 0, len(row))
            size = 1
            for i in range(1, len(row)):
                if row[i] != row[size - 1]:
                    row[size] = row[i]
                    size += 1
            pairs = first_pair + size

        if layout == VW:
            while position < end and data[position] != 124:
                position += 1
            if position == end:
                status = NO_BAR
                break
            position += 1
            while position < end and not _is_space(data[position]):  # namespace name
                position += 1

        # Features.
        ordered = True
        while True:
            while position < end and _is_space(data[position]):
                position += 1
            if position >= end:
                break
            index, position_after = _read_integer(data, position, end)
            if position_after == position:
                status = BAD_FEATURE
                break
            index -= feature_start
            if index < 0 or index >= num_features:
                status = FEATURE_RANGE
                break
            value = 1.0
            if position_after < end and data[position_after] == 58:
                value, position_after, status = _read_float(data, position_after + 1, end)
                if status != OK:
                    break
                if position_after < end and not _is_space(data[position_after]):
                    status = BAD_VALUE
                    break
            elif layout != VW or (position_after < end and not _is_space(data[position_after])):
                status = BAD_FEATURE
                break
            position = position_after
            if nonzeros > first_nonzero and index <= indices[nonzeros - 1]:
                ordered = False
            indices[nonzeros] = index
            values[nonzeros] = value
            nonzeros += 1
            top_feature = max(top_feature, index)
        if status != OK:
            break
        if not ordered:
            _sort_pairs(indices, values, first_nonzero, nonzeros)
            last = first_nonzero
            for i in range(first_nonzero + 1, nonzeros):
                if indices[i] == indices[last]:  # a repeated feature: add its values
                    values[last] += values[i]
                    if not np.isfinite(values[last]):
                        status = NOT_FINITE
                else:
                    last += 1
                    indices[last] = indices[i]
                    values[last] = values[i]
            nonzeros = last + 1
            if status != OK:
                break

        if pairs == first_pair and not keep_unlabelled:
            unlabelled += 1
            nonzeros = first_nonzero
        else:
            unlabelled += 1 if pairs == first_pair else 0
            featureless += 1 if nonzeros == first_nonzero else 0
            row_sizes[kept] = nonzeros - first_nonzero
            label_sizes[kept] = pairs - first_pair
            kept += 1
        line += 1
        position = after
    return (
        status,
        line,
        position,
        line,
        kept,
        nonzeros,
        pairs,
        unlabelled,
        featureless,
        top_feature,
        top_label,
    )
