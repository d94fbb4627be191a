"""Tables of common knowledge: one entry a line, its fields apart by / or |."""
# ruff: noqa: E501, SIM905 (a table reads best one entry a line)

from __future__ import annotations

# country, capital, continent, language, currency
COUNTRIES = [
    tuple(line.split("/"))
    for line in """France/Paris/Europe/French/euro
Germany/Berlin/Europe/German/euro
Spain/Madrid/Europe/Spanish/euro
Italy/Rome/Europe/Italian/euro
Portugal/Lisbon/Europe/Portuguese/euro
Austria/Vienna/Europe/German/euro
Greece/Athens/Europe/Greek/euro
Poland/Warsaw/Europe/Polish/zloty
Sweden/Stockholm/Europe/Swedish/krona
Norway/Oslo/Europe/Norwegian/krone
Denmark/Copenhagen/Europe/Danish/krone
Hungary/Budapest/Europe/Hungarian/forint
Iceland/Reykjavik/Europe/Icelandic/krona
Turkey/Ankara/Asia/Turkish/lira
Japan/Tokyo/Asia/Japanese/yen
China/Beijing/Asia/Chinese/yuan
Thailand/Bangkok/Asia/Thai/baht
Vietnam/Hanoi/Asia/Vietnamese/dong
Indonesia/Jakarta/Asia/Indonesian/rupiah
Mongolia/Ulaanbaatar/Asia/Mongolian/tugrik
Egypt/Cairo/Africa/Arabic/pound
Morocco/Rabat/Africa/Arabic/dirham
Kenya/Nairobi/Africa/Swahili/shilling
Ghana/Accra/Africa/English/cedi
Nigeria/Abuja/Africa/English/naira
Ethiopia/Addis Ababa/Africa/Amharic/birr
Brazil/Brasilia/South America/Portuguese/real
Argentina/Buenos Aires/South America/Spanish/peso
Chile/Santiago/South America/Spanish/peso
Peru/Lima/South America/Spanish/sol
Colombia/Bogota/South America/Spanish/peso
Mexico/Mexico City/North America/Spanish/peso
Cuba/Havana/North America/Spanish/peso
Canada/Ottawa/North America/English/dollar
Australia/Canberra/Oceania/English/dollar
Ireland/Dublin/Europe/English/euro
Finland/Helsinki/Europe/Finnish/euro
Romania/Bucharest/Europe/Romanian/leu""".splitlines()
]
ELEMENTS = [
    tuple(word.split("/"))
    for word in (
        "hydrogen/H/1 helium/He/2 lithium/Li/3 beryllium/Be/4 boron/B/5 carbon/C/6 nitrogen/N/7 "
        "oxygen/O/8 fluorine/F/9 neon/Ne/10 sodium/Na/11 magnesium/Mg/12 aluminium/Al/13 "
        "silicon/Si/14 phosphorus/P/15 sulfur/S/16 chlorine/Cl/17 argon/Ar/18 potassium/K/19 "
        "calcium/Ca/20 iron/Fe/26 nickel/Ni/28 copper/Cu/29 zinc/Zn/30 silver/Ag/47 tin/Sn/50 "
        "gold/Au/79 mercury/Hg/80 lead/Pb/82 uranium/U/92"
    ).split()
]
YOUNG = (
    "dog/puppy cat/kitten cow/calf horse/foal sheep/lamb goat/kid pig/piglet hen/chick duck/duckling "
    "goose/gosling bear/cub lion/cub deer/fawn kangaroo/joey frog/tadpole swan/cygnet owl/owlet "
    "rabbit/kit seal/pup"
).split()
OPPOSITES = (
    "hot/cold big/small fast/slow light/dark early/late high/low happy/sad open/closed full/empty "
    "hard/soft wet/dry old/young strong/weak near/far rich/poor loud/quiet clean/dirty thick/thin "
    "sweet/bitter wide/narrow deep/shallow brave/cowardly cheap/expensive true/false"
).split()
PAST = (
    "go/went see/saw eat/ate write/wrote run/ran take/took give/gave speak/spoke think/thought "
    "buy/bought bring/brought teach/taught catch/caught fly/flew swim/swam drink/drank sing/sang "
    "begin/began break/broke choose/chose drive/drove fall/fell find/found forget/forgot grow/grew "
    "hide/hid know/knew leave/left lose/lost meet/met ride/rode sleep/slept steal/stole tear/tore "
    "throw/threw wear/wore win/won"
).split()
PLURALS = (
    "child/children foot/feet tooth/teeth mouse/mice man/men woman/women person/people goose/geese "
    "leaf/leaves knife/knives wolf/wolves sheep/sheep fish/fish ox/oxen half/halves city/cities"
).split()
# term, class, what sets it apart
DEFINITIONS = [
    tuple(line.split("|"))
    for line in """thermometer|an instrument|measures temperature|knowing how warm or cold something is
compass|an instrument|shows the direction of north|finding the way on land and sea
telescope|an instrument|makes distant objects look near|watching the moon, planets and stars
microscope|an instrument|makes tiny things look large|studying cells and small creatures
library|a place|keeps books that people can borrow|reading, learning and quiet work
hospital|a place|cares for people who are ill|healing and emergencies
volcano|a mountain|can throw out hot melted rock|showing how the earth works inside
glacier|a mass of ice|moves slowly down a valley|storing fresh water
desert|a dry region|gets very little rain|showing how life adapts to heat
island|a piece of land|has water on all sides|giving a home to special plants and animals
river|a stream of water|flows towards a sea or a lake|drinking water, fish and transport
bicycle|a vehicle|has two wheels and is moved by the legs|cheap and clean travel
battery|a device|stores electrical energy|running lamps, phones and toys
algorithm|a list of steps|solves a problem|telling a computer what to do
database|a collection of data|can be searched quickly|keeping and finding information
compiler|a program|turns source code into machine code|running programs fast
variable|a name in a program|stands for a value that can change|keeping values for later
function|a part of a program|does one task and can be called many times|reusing code
recipe|a list of instructions|tells how to cook a dish|getting the same dish every time
budget|a plan|says how much money comes in and goes out|spending with care
calendar|a table|shows the days, weeks and months of a year|planning ahead
dictionary|a book|lists words and explains their meaning|learning a language
orchestra|a large group of musicians|plays together under a conductor|playing symphonies
photosynthesis|a process|lets plants make sugar from light, water and air|feeding nearly all life
gravity|a force|pulls things towards each other|keeping planets in their orbits
democracy|a form of government|lets the people choose their leaders|giving citizens a voice
contract|an agreement|binds two or more people by law|making promises reliable
vaccine|a medicine|trains the body to fight a disease|preventing serious illness""".splitlines()
]
CATEGORIES = {
    "fruits": "apple banana pear orange grape cherry mango peach plum lemon kiwi melon",
    "vegetables": "carrot potato onion tomato spinach cabbage pea bean cucumber pepper leek",
    "animals": "dog horse elephant tiger rabbit whale eagle snake bear fox giraffe dolphin",
    "colours": "red blue green yellow orange purple black white brown pink grey",
    "musical instruments": "piano violin guitar drum flute trumpet cello harp clarinet organ",
    "sports": "football tennis swimming running cycling rowing boxing skiing hockey golf",
    "pieces of furniture": "table chair bed sofa desk shelf wardrobe stool cupboard bench",
    "tools": "hammer saw screwdriver drill wrench pliers file chisel axe shovel",
    "programming languages": "Python Java C Rust Go Ruby Swift Kotlin JavaScript Haskell",
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune",
    "European countries": "France Spain Italy Germany Poland Greece Norway Austria Portugal Sweden",
    "vehicles": "car bus train bicycle ship plane truck tram scooter helicopter",
    "school subjects": "mathematics history geography physics biology art music chemistry",
    "kinds of weather": "rain snow sunshine wind fog storm hail frost thunder",
    "clothes": "shirt coat hat scarf trousers sock shoe glove dress skirt jacket",
    "trees": "oak pine birch maple willow beech elm ash cedar spruce",
}
# goal, tools, steps
HOW_TO = [
    (line.split("|")[0], line.split("|")[1], line.split("|")[2].split(";"))
    for line in """make a cup of tea|a kettle and a tea bag|Boil fresh water;Put the tea bag into a cup;Pour the hot water over it;Wait three minutes;Take out the tea bag and enjoy
wash the dishes|warm water and soap|Scrape off the leftovers;Fill the sink with warm water and soap;Wash the glasses first;Rinse everything;Let it dry
plant a tree|a spade and water|Choose a sunny place;Dig a deep hole;Set the tree into the hole;Fill the hole with soil;Water it well
write an essay|paper and a quiet hour|Choose a topic;Collect your ideas;Make a plan;Write a first draft;Read it again and correct it
change a light bulb|a new bulb and a ladder|Switch off the light;Let the old bulb cool;Unscrew the old bulb;Screw in the new bulb;Switch on the light
cook pasta|a pot, water and salt|Bring a large pot of water to the boil;Add salt;Put in the pasta;Stir now and then;Drain it when it is soft
clean a window|a cloth and a bucket|Fill a bucket with warm water;Add a little soap;Wipe the glass with a cloth;Dry it with paper;Clean the frame too
pack a suitcase|a list of what you need|Write a list;Lay everything on the bed;Put heavy things at the bottom;Roll up the clothes;Close it and check the weight
prepare for an exam|notes and time|Make a timetable;Read your notes;Practise with old questions;Explain the topic to a friend;Sleep well the night before
repair a flat tyre|a patch and a pump|Take off the wheel;Pull out the tube;Find the hole;Glue a patch on it;Pump up the tyre
bake bread|flour, yeast, water and salt|Mix flour, yeast, water and salt;Knead the dough;Let it rise for an hour;Form a loaf;Bake it until it is brown
learn a new language|a book and a patient friend|Learn ten words every day;Listen to songs;Speak with other people;Read simple stories;Do not fear mistakes
save money|a notebook|Write down what you spend;Make a budget;Buy only what you need;Put a little aside every month;Compare prices
grow tomatoes|seeds, soil and sun|Put the seeds into small pots;Keep them warm;Move them outside in May;Water them every day;Pick the red ones
sleep better|a dark, quiet room|Go to bed at the same time;Turn off all screens;Open the window for a while;Read a few pages;Keep the room dark""".splitlines()
]
