# gnuplot -e "data='FILE'; out='FILE'; what='SCENARIO'" bad-night.gp: a plot of what bad-night.pl has recorded.
load system("dirname '".ARG0."'").'/style.gp'
set terminal svg size 800,960 dynamic background '#ffffff' font 'sans-serif,24' noenhanced
set output out
set datafile separator '\t'
set multiplot layout 2,1
set grid lc rgb '#dddddd'
set key above horizontal
set xrange [0:60]
set yrange [0:*]
set lmargin 10
set rmargin 10
set ytics nomirror

mark(n, x, text) = sprintf("set arrow %d from %g, graph 0 to %g, graph 1 nohead dt 2 lc rgb '#888888'; set label %d '%s' at %g, graph %g offset 0.5,0 tc rgb '#666666'", n, x, x, n, text, x, 1.06 - 0.12 * n)
if (what eq 'hung-holder') { eval mark(1, 15, 'a holder hangs'); eval mark(2, 45, 'it is ended') }
if (what eq 'herd') { eval mark(1, 15, '300 start') }
if (what eq 'failover') { eval mark(1, 20, 'the primary dies'); eval mark(2, 28, 'promoted') }

if (what eq 'failover') {
	set ylabel 'up'
	set yrange [-0.1:1.4]
	set ytics (0, 1)
	set y2label 'seconds'
	set y2range [0:*]
	set y2tics
	plot data using 1:2 with steps lw 2 title 'up', data using 1:5 axes x1y2 with lines lw 2 title 'oldest wait, s (right)'
	set yrange [0:*]
	set ytics auto
	set y2range [*:*]
} else {
	set ylabel 'requests'
	set y2label 'seconds'
	set y2range [0:*]
	set y2tics
	plot data using 1:4 with lines lw 2 title 'waiting', data using 1:5 axes x1y2 with lines lw 2 title 'oldest wait, s (right)'
}
unset label
set xlabel 'seconds'
set ylabel 'per second'
if (what eq 'herd') {
	set y2label 'seconds'
	set logscale y2
	set y2range [0.001:100]
	plot data using 1:6 with lines lw 2 title 'grants', data using 1:8 axes x1y2 with lines lw 2 title 'wait p50, s (right)', data using 1:9 axes x1y2 with lines lw 2 title 'wait p99, s (right)'
} else {
	unset y2label
	unset y2tics
	plot data using 1:6 with lines lw 2 title 'grants'
}
