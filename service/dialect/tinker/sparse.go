package tinker

import "tessera.dev/service/tinker"

// dense is a tensor that came as compressed sparse rows; what is not listed is 0.
func dense(values tinker.Tensor, rows, columns []int64) (made tinker.Tensor, err error) {
	if len(values.Shape) != 2 || values.Shape[0] < 0 || values.Shape[1] < 0 {
		return made, shapeError("is of a sparse tensor with %d dimensions; a shape of 2 is wanted", len(values.Shape))
	}
	height, width := values.Shape[0], values.Shape[1]
	if height > mostEntries || width > mostEntries || height*width > mostEntries {
		return made, shapeError("is of a tensor with %d x %d elements; at most %d are wanted", height, width, mostEntries)
	}
	count := len(values.Floats)
	if values.Integers != nil {
		count = len(values.Integers)
	}
	if int64(len(rows)) != height+1 || len(columns) != count || rows[0] != 0 || rows[height] != int64(count) {
		return made, shapeError("has %d row pointers and %d columns for %d rows and %d values; they contradict each other", len(rows), len(columns), height, count)
	}
	made.Shape = values.Shape
	if values.Integers != nil {
		made.Integers = make([]int64, height*width)
	} else {
		made.Floats = make([]float32, height*width)
	}
	for row := int64(0); row < height; row++ {
		from, until := rows[row], rows[row+1]
		if from > until || until > int64(count) {
			return made, shapeError("falls from %d to %d; row pointers that grow are wanted", from, until)
		}
		for i := from; i < until; i++ {
			column := columns[i]
			if column < 0 || column >= width {
				return made, shapeError("has the column %d; 0 to %d is wanted", column, width-1)
			}
			if values.Integers != nil {
				made.Integers[row*width+column] = values.Integers[i]
			} else {
				made.Floats[row*width+column] = values.Floats[i]
			}
		}
	}
	return made, nil
}
