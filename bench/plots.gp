# gnuplot -e "data='DIRECTORY'; out='DIRECTORY'; before=SECONDS" plots.gp: the plots of what report.pl has left in DIRECTORY.
load system("dirname '".ARG0."'").'/style.gp'
have(f) = int(system("test -s '".data."/".f."' && echo 1 || echo 0"))
nblocks(f) = int(system("grep -c '^\"' '".data."/".f."'"))

if (have('pairs')) {
	set output out.'/pairs.svg'
	set title 'Acquire and release of random names'
	set xlabel 'clients'
	set ylabel 'pairs/s'
	set logscale x 2
	set logscale y
	plot for [i = 0 : nblocks('pairs') - 1] data.'/pairs' index i using 1:2:3:4 with yerrorlines \
		lw width_of(title_of(data.'/pairs', i)) lc rgb colour_of(title_of(data.'/pairs', i), i) title columnheader(1)
}

do for [p in 'p50 p99'] {
	if (have('hot-'.p)) {
		set output out.'/hand-off-'.p.'.svg'
		set title 'Hand-off of one hot lock, '.p
		set xlabel 'clients'
		set ylabel 'microseconds'
		set logscale x 2
		set logscale y
		plot for [i = 0 : nblocks('hot-'.p) - 1] data.'/hot-'.p index i using 1:2:3:4 with yerrorlines \
			lw width_of(title_of(data.'/hot-'.p, i)) lc rgb colour_of(title_of(data.'/hot-'.p, i), i) title columnheader(1)
	}
}

unset logscale
if (have('snapshot')) {
	set output out.'/snapshot.svg'
	set title sprintf('A transaction is open from second %s on', before)
	set xlabel 'seconds'
	set ylabel 'operations/s'
	set yrange [0:*]
	set arrow 1 from first before, graph 0 to first before, graph 1 nohead dt 2 lc rgb '#888888'
	plot for [i = 0 : nblocks('snapshot') - 1] data.'/snapshot' index i using 1:2 with lines dt dash_of(title_of(data.'/snapshot', i)) \
		lw width_of(title_of(data.'/snapshot', i)) lc rgb colour_of(title_of(data.'/snapshot', i), i) title columnheader(1)
	unset arrow 1
	set yrange [*:*]
}

set style data histograms
set style fill solid 0.8 border -1
set boxwidth 0.9
set logscale y
unset xlabel
set xtics rotate by -30
do for [f in 'crash-8 resign-2'] {
	if (have(f)) {
		set output out.'/'.(f eq 'crash-8' ? 'failover-crash' : 'failover-resign').'.svg'
		set title (f eq 'crash-8' ? 'The leader dies: end of its TTL to the next' : 'The leader resigns: until the next')
		set ylabel 'milliseconds'
		set yrange [0.01:*]
		plot data.'/'.f using 2:xtic(1) title 'p50', '' using 3 title 'p99'
	}
}
