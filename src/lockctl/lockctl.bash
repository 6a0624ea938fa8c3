# Bash completion for lockctl. Queries the server for names, and gives up after less than a second.

_lockctl_words()
{
	local word
	while IFS= read -r word; do
		[[ $word != "$cur"* ]] || COMPREPLY+=("$(printf %q "$word")")
	done
}

# Prints names from the server, using the connection options on the command line.
_lockctl_names()
{
	PGCONNECT_TIMEOUT=1 timeout 0.8 lockctl "${connection[@]}" -q -o csv "$1" 2>/dev/null </dev/null |
		awk -v want="$2" 'NR == 1 { n = split($0, head, ","); for (i = 1; i <= n; i++) if (head[i] == want) column = i; next }
			column && $0 !~ /"/ { split($0, field, ","); if (!seen[field[column]]++) print field[column] }'
}

_lockctl_options()
{
	case $1 in
		lock) echo --and --ttl --wait --try --shared --permits --hold-for --grace --at-most --notify --conflict-exit-code ;;
		elect) echo --ttl --wait --try --grace --at-most --notify --http --listen --conflict-exit-code ;;
		acquire) echo --ttl --wait --try --shared --permits --owner --lease --conflict-exit-code ;;
		renew) echo --ttl ;;
		release) echo --hold-for --force --now --election ;;
		lease) echo --ttl --owner --once ;;
		watch | top) echo --interval --count ;;
		install) echo --schema --grant --print ;;
		'') echo --host --port --username --dbname --shards --shard --output --quiet --verbose --version ;;
	esac
	echo --help
}

# Completes the command that lockctl is to run, which begins at word $1.
_lockctl_command()
{
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif [ "$1" = "$COMP_CWORD" ]; then
		COMPREPLY=($(compgen -c -- "$cur"))
	fi
}

_lockctl()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev= command= i word
	local -i words=0 names=-1 # words so far after the subcommand; words that precede CMD (-1: there is no CMD)
	local -a connection=()
	COMPREPLY=()
	[ "$COMP_CWORD" -lt 1 ] || prev=${COMP_WORDS[COMP_CWORD - 1]}
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
			--)
				if [ "$words" -gt 0 ]; then _lockctl_command $((i + 1)); return; fi ;;
			-h | -p | -U | -d | -S | -N) connection+=("$word" "${COMP_WORDS[i + 1]-}"); ((++i)) ;;
			--host=* | --port=* | --username=* | --dbname=* | --shards=* | --shard=*) connection+=("$word") ;;
			-[oEw] | -[!-]*[Ew] | --and | --ttl | --wait | --permits | --hold-for | --grace | --at-most | --http | --schema | --grant | --conflict-exit-code) ((++i)) ;;
			-*) ;;
			*)
				if [ -n "$command" ]; then
					((++words))
					if [ "$words" -gt "$names" ] && [ "$names" -gt 0 ]; then _lockctl_command "$i"; return; fi
				else
					command=$word
					case $command in lock) names=1 ;; elect) names=2 ;; esac
				fi ;;
		esac
	done
	case $prev in
		-o | --output) COMPREPLY=($(compgen -W 'table json csv' -- "$cur")); return ;;
		-h | -p | -U | -d) return ;;
		-S) compopt -o default; return ;;
		-N) _lockctl_words < <(lockctl "${connection[@]::${#connection[@]}-2}" shard 2>/dev/null); return ;;
		--and) _lockctl_words < <(_lockctl_names locks name); return ;;
	esac
	if [[ $cur = -* ]]; then
		COMPREPLY=($(compgen -W "$(_lockctl_options "$command")" -- "$cur"))
		return
	fi
	if [ "$words" = "$names" ]; then
		_lockctl_command "$COMP_CWORD"
		return
	fi
	case $command in
		'') COMPREPLY=($(compgen -W 'lock elect acquire renew release held lease locks waiters elections status watch top doctor shard install help' -- "$cur")) ;;
		lease) [ "$prev" != lease ] || COMPREPLY=($(compgen -W 'grant keep-alive revoke ttl list' -- "$cur")) ;;
		elect | elections) _lockctl_words < <(_lockctl_names elections election) ;;
		lock | acquire | renew | release | held | locks | waiters | watch) _lockctl_words < <(_lockctl_names locks name) ;;
		help) COMPREPLY=($(compgen -W 'lock elect acquire renew release held lease locks waiters elections status watch top doctor shard install' -- "$cur")) ;;
	esac
}

complete -F _lockctl lockctl
